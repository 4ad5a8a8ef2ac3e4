"""The published weights and merges of GPT-2, for learners who ask for them by name; nothing in the course needs them.

    from course_utils.corpora import gpt2
    published = gpt2.load()

548 MB, once; then they are kept in the cache. Both files have a checksum: the weights are those of the smallest model
of Radford et al. 2019, as Hugging Face publishes them (openai-community/gpt2, MIT licence), the merges are OpenAI's.
"""

import json
from typing import NamedTuple

import torch
from torch import Tensor

from course_utils.corpora.downloads import pinned_file

WEIGHTS_PIN = "sha256:248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"
WEIGHTS_BYTES = 548_105_171
MERGES_PIN = "sha256:1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
MERGES_BYTES = 456_318

_HUB = "https://huggingface.co/openai-community/gpt2/resolve"
_REVISION = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
WEIGHTS_URLS = (f"{_HUB}/{_REVISION}/model.safetensors", f"{_HUB}/main/model.safetensors")
MERGES_URLS = (
    "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe",
    f"{_HUB}/{_REVISION}/merges.txt",
)
N_HEADS = 12
SECONDS = 3600.0


class Published(NamedTuple):
    """The weights by Hugging Face's names, and the merges: pair of ids -> new id.

    The first 256 rows of the table are those of the bytes 0 to 255, in this order.
    """

    weights: dict[str, Tensor]
    merges: dict[tuple[int, int], int]


def load() -> Published | None:
    """GPT-2, from the cache or the internet. None where it cannot be had; then it is said why."""
    text = pinned_file("gpt2-merges.txt", MERGES_PIN, MERGES_URLS, MERGES_BYTES)
    data = None if text is None else pinned_file("gpt2.safetensors", WEIGHTS_PIN, WEIGHTS_URLS, WEIGHTS_BYTES, SECONDS)
    if text is None or data is None:
        print("Without an internet connection there is no GPT-2 here. The lesson goes on without it.")
        return None
    weights = read_safetensors(data)
    table = weights["wte.weight"]
    order = torch.tensor(their_bytes()).argsort()
    weights["wte.weight"] = torch.cat([table[:256][order], table[256:]])
    return Published(weights, read_merges(text.decode()))


def read_safetensors(data: bytes) -> dict[str, Tensor]:
    """The float32 tensors of a file: 8 bytes say how long the header is, which says where each tensor lies."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    body = bytearray(data[8 + length :])  # PyTorch wants memory that can be written to
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, end = entry["data_offsets"]
            numbers = torch.frombuffer(body, dtype=torch.float32, count=(end - first) // 4, offset=first)
            tensors[name] = numbers.reshape(entry["shape"])
    return tensors


def their_bytes() -> list[int]:
    """The bytes in the order of GPT-2's ids: those that can be printed come first."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [*printed, *(byte for byte in range(256) if byte not in printed)]


def read_merges(text: str) -> dict[tuple[int, int], int]:
    """The merges of a file with one pair per line, as ids: bytes are 0 to 255, then 256, 257, …

    The file writes a byte that cannot be printed as a letter from 256 on: Ġ is a space.
    """
    others = their_bytes()[188:]
    ids = {chr(byte): byte for byte in their_bytes()[:188]} | {chr(256 + i): byte for i, byte in enumerate(others)}
    merges = {}
    lines = [line for line in text.split("\n") if line and not line.startswith("#version")]
    for new, line in enumerate(lines, start=256):
        first, second = line.split(" ")
        merges[ids[first], ids[second]] = new
        ids[first + second] = new
    return merges
