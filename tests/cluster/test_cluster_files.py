"""cluster.yaml and clusters/onprem.yaml against Ray's schema and AWS's service model; no credentials, no network."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.hosts import REPOSITORY

AWS, ONPREM = REPOSITORY / "cluster.yaml", REPOSITORY / "clusters" / "onprem.yaml"
OF_RAY = {"SubnetIds"}
"""Keys of node_config that Ray itself reads and replaces before it calls AWS."""


class WrongClusterFile(Exception):
    """What Ray or AWS would refuse."""


def read(path: Path) -> dict[str, Any]:
    config = yaml.safe_load(path.read_text())
    assert isinstance(config, dict)
    return config


def check_against_ray(config: dict[str, Any]) -> dict[str, Any]:
    """Ray's own schema, and its filling in of defaults."""
    import jsonschema
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    try:
        jsonschema.validate(config, schema)
        prepared = prepare_config(copy.deepcopy(config))
        validate_config(prepared)
    except (jsonschema.ValidationError, ValueError) as error:
        raise WrongClusterFile(str(error)) from None
    assert isinstance(prepared, dict)
    return prepared


def check_against_aws(config: dict[str, Any]) -> None:
    """Every node_config is what EC2's RunInstances takes, by botocore's model of the service."""
    import botocore.session
    from botocore.validate import ParamValidator

    model = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape
    for name, node_type in config["available_node_types"].items():
        given = {key: value for key, value in node_type["node_config"].items() if key not in OF_RAY}
        report = ParamValidator().validate({**given, "MinCount": 1, "MaxCount": 1}, model)
        if report.has_errors():
            raise WrongClusterFile(f"{name}: {report.generate_report()}")
        market = given.get("InstanceMarketOptions", {}).get("MarketType")
        if market not in (None, *model.members["InstanceMarketOptions"].members["MarketType"].enum):
            raise WrongClusterFile(f"{name}: MarketType: {market}")  # botocore does not check enumerations


def commands(config: dict[str, Any]) -> Iterator[str]:
    for field in ("setup_commands", "head_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"):
        yield from config.get(field, [])


@pytest.mark.parametrize("path", [AWS, ONPREM], ids=["cluster.yaml", "onprem.yaml"])
def test_ray_accepts_the_file(path: Path) -> None:
    prepared = check_against_ray(read(path))
    assert prepared["head_node_type"] in prepared["available_node_types"]


def test_aws_accepts_the_machines() -> None:
    check_against_aws(read(AWS))


@pytest.mark.parametrize("path", [AWS, ONPREM], ids=["cluster.yaml", "onprem.yaml"])
@pytest.mark.parametrize("field", ["idle_timeout_minutes", "head_start_ray_commands", "provider"])
def test_a_misspelt_field_is_caught(path: Path, field: str) -> None:
    config = read(path)
    config[field + "x"] = config.pop(field)
    with pytest.raises(WrongClusterFile, match=field):
        check_against_ray(config)


def test_a_wrong_head_node_type_is_caught() -> None:
    config = read(AWS)
    config["head_node_type"] = "heap"
    with pytest.raises(WrongClusterFile, match="head_node_type"):
        check_against_ray(config)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("InstanceTyp",), "g5.xlarge"),
        (("InstanceMarketOptions", "MarketTyp"), "spot"),
        (("InstanceMarketOptions", "MarketType"), "stop"),
        (("InstanceMarketOptions", "SpotOptions", "MaxPric"), "1"),
        (("BlockDeviceMappings", 0, "Ebs", "VolumeSize"), "120 GB"),
        (("SecurityGroupIds",), "sg-0123456789abcdef0"),
        (("MetadataOptions", "HttpToken"), "required"),
    ],
)
def test_a_planted_slip_in_a_machine_is_caught(path: tuple[str | int, ...], value: object) -> None:
    config = read(AWS)
    at: Any = config["available_node_types"]["gpu"]["node_config"]
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    with pytest.raises(WrongClusterFile, match=str(path[-1])):
        check_against_aws(config)


def test_workers_are_spot_machines_from_zero_and_the_head_has_no_gpu() -> None:
    types = read(AWS)["available_node_types"]
    assert types["gpu"]["min_workers"] == 0
    assert types["gpu"]["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert types["head"]["resources"] == {"CPU": 0}
    assert "InstanceMarketOptions" not in types["head"]["node_config"]


def test_every_machine_names_its_own_security_group() -> None:
    for node_type in read(AWS)["available_node_types"].values():
        assert node_type["node_config"]["SecurityGroupIds"]


@pytest.mark.parametrize("path", [AWS, ONPREM], ids=["cluster.yaml", "onprem.yaml"])
def test_every_ray_is_started_with_the_token_and_the_dashboard_stays_inside(path: Path) -> None:
    starts = [command for command in commands(read(path)) if "ray start" in command]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in command for command in starts)
    head = next(command for command in starts if "--head" in command)
    assert "--dashboard-host 127.0.0.1" in head
    assert "MLFLOW_TRACKING_URI=http://" in head


@pytest.mark.parametrize("path", [AWS, ONPREM], ids=["cluster.yaml", "onprem.yaml"])
def test_every_command_is_shell(path: Path) -> None:
    for command in commands(read(path)):
        done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize("path", [AWS, ONPREM], ids=["cluster.yaml", "onprem.yaml"])
def test_only_named_files_leave_and_the_code_is_among_them(path: Path) -> None:
    mounts = read(path)["file_mounts"]
    assert {"sweep", "trainables", "analysis", "pyproject.toml", "constraints.txt"} <= set(mounts.values())
    for local in mounts.values():
        assert local == "~/.ray/auth_token" or (REPOSITORY / local).exists(), f"{local} is not in the repository"


def test_the_images_are_of_the_pinned_ray() -> None:
    pins = dict(line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if "==" in line)
    for field in ("head_image", "worker_image"):
        assert f":{pins['ray']}-py311" in read(AWS)["docker"][field]


def test_both_files_start_mlflow_alike() -> None:
    def mlflow(path: Path) -> str:
        return next(command for command in commands(read(path)) if "mlflow server" in command)

    assert mlflow(ONPREM).replace(".venv/bin/mlflow", "mlflow") == mlflow(AWS)
