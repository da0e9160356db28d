"""What a study file declares, read, checked and resolved into cells."""

from sweep.study.study import Study, load_study

__all__ = ["Study", "load_study"]
