"""From recorded results to a verdict; knows neither Ray nor torch nor the other packages."""
