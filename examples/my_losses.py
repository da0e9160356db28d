"""A loss of one's own: the squared error of the cosine, forgiven up to a margin."""

import torch
from torch import Tensor, nn


class Margin(nn.Module):
    """Named in a study file as `my_losses:Margin`; what stands in `loss_args` arrives as keyword arguments."""

    def __init__(self, model: nn.Module, margin: float = 0.1) -> None:
        super().__init__()
        self.model, self.margin = model, margin

    def forward(self, sentence_features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Labels lie in 0..1; one set of features for each sentence of the pairs."""
        first, second = (self.model(features)["sentence_embedding"] for features in sentence_features)
        error = (torch.cosine_similarity(first, second) - labels).abs()
        return (error - self.margin).clamp(min=0).square().mean()
