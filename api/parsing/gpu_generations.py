"""The generations of GPUs as numbers that can be compared: the major number of CUDA's compute capability."""

from __future__ import annotations

from api.parsing.decimals import whole_number

# NVIDIA's feature discovery writes product names that contain the model: "NVIDIA-H100-80GB-HBM3".
GENERATION_OF_MODEL = {
    "t4": 7,
    "v100": 7,
    "a10": 8,
    "a30": 8,
    "a40": 8,
    "a100": 8,
    "l4": 8,
    "l40s": 8,
    "h100": 9,
    "h200": 9,
    "gh200": 9,
    "b200": 10,
    "gb200": 10,
}
_OF_FAMILY = {"volta": 7, "turing": 7, "ampere": 8, "ada": 8, "hopper": 9, "blackwell": 10}
_MOST = 99


def generation_of(text: str) -> int:
    """Return the generation that a model ("a100"), a family ("hopper") or a number names; 0 for unknown."""
    word = text.lower()
    number = whole_number(word)
    if number is not None:
        return number if number <= _MOST else 0
    return GENERATION_OF_MODEL.get(word) or _OF_FAMILY.get(word, 0)
