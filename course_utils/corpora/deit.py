"""The published weights of DeiT-tiny, for learners who ask for them by name; nothing in the course needs them.

    from course_utils.corpora import deit
    weights = deit.load()

23 MB, once; then they are kept in the cache. They are those of Touvron et al. 2021 as the authors publish them (Apache
licence 2.0); the first digits of the checksum stand in the name that they gave to the file.
"""

import io

import torch
from jaxtyping import Float
from torch import Tensor

from course_utils.corpora.downloads import pinned_file

WEIGHTS_PIN = "sha256:a1311bcf4f24e3c95adaa75535db67bc4412d95535b98f7c1dfd1164dda41c97"
WEIGHTS_BYTES = 22_917_895
WEIGHTS_URLS = ("https://dl.fbaipublicfiles.com/deit/deit_tiny_patch16_224-a1311bcf.pth",)
N_HEADS = 3
# What it learned from: 224 × 224 pixels, red, green and blue, less these means and divided by these deviations.
MEANS, DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load() -> dict[str, Tensor] | None:
    """The weights by the authors' names, from the cache or the internet. None where they cannot be had."""
    data = pinned_file("deit-tiny.pth", WEIGHTS_PIN, WEIGHTS_URLS, WEIGHTS_BYTES)
    if data is None:
        print("Without an internet connection there is no DeiT here. The lesson goes on without it.")
        return None
    return torch.load(io.BytesIO(data), weights_only=True)["model"]


def prepared(
    pixels: Float[Tensor, "... channels height width"],
) -> Float[Tensor, "... channels height width"]:
    """Pixels from 0 to 1 as DeiT wants them."""
    means, deviations = (torch.tensor(x)[:, None, None].to(pixels) for x in (MEANS, DEVIATIONS))
    return (pixels - means) / deviations
