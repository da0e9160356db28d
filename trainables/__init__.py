"""Train and evaluate one cell of a study; knows neither Ray nor MLflow nor the study."""
