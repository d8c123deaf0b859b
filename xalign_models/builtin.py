"""The built-in modules that are imported lazily, by name.

A string that names a module of another room stands here or among the entry points in pyproject.toml, nowhere else; a
test holds this. The module imports nothing.
"""

TASKS = "xalign_tasks"
"""The other package of this distribution; its ``registration`` is the built-in plug-in."""

PUBLIC = {
    "AffineMap": "xalign_models.alignments.affine",
    "Centered": "xalign_models.alignments.centered",
    "LIR": "xalign_models.alignments.lir",
    "LSAR": "xalign_models.alignments.lsar",
    "Procrustes": "xalign_models.alignments.procrustes",
    "Thresholds": "xalign_models.thresholds",
    "as_mteb": "xalign_models.models.api",
    "evaluate": "xalign_models.evaluation.frame",
    "fit": "xalign_models.models.api",
    "list_models": "xalign_models.models.names",
    "load": "xalign_models.models.building",
    "load_map": "xalign_models.portable.loading",
    "register": "xalign_models.plugins",
    "save": "xalign_models.models.saving",
}
"""Module of each name that ``xalign_models`` offers."""

HOMES = {
    "alignment": "xalign_models.alignments",
    "backbone": "xalign_models.models.catalogue",
    "corpus": "xalign_models.corpora",
}
"""Module that registers the built-in values of a kind; imported before the first look-up."""

SOURCES = {
    "openai": ("xalign_models.backbones.endpoints.openai:OpenAIEndpoint", "a server of OpenAI's embeddings protocol"),
    "tei": ("xalign_models.backbones.endpoints.tei:TEIEndpoint", "a text-embeddings-inference server, by its own API"),
    "vectors": ("xalign_models.backbones.vectors:VectorsFile", "vectors in a parquet, npz or safetensors file"),
    "mteb": ("xalign_models.backbones.mteb:MtebModel", "a model of mteb's registry"),
    "lusifer": ("xalign_models.training.lusifer.released:ReleasedLusifer", "a LUSIFER in its authors' own files"),
}
"""Class and description of each built-in source of vectors, by scheme."""

USE_MODULE = "xalign_models.backbones.use.USEMultilingual"
"""Module type that the installed USE multilingual v3 names in its ``modules.json``."""

MODULE_TYPES = (
    USE_MODULE,
    "xalign_models.alignments.module.Aligned",
    "xalign_models.alignments.networks.RectifiedAligned",
    "xalign_models.backbones.pointer.Pointer",
    "xalign_models.backbones.prompt_eol.PromptEOL",
    "xalign_models.backbones.reduced.Reduced",
    "xalign_models.backbones.router.LanguageRouter",
    "xalign_models.backbones.static.LanguageStatic",
    "xalign_models.backbones.transformer.LanguageTransformer",
    "xalign_models.training.lira.module.LiRA",
    "xalign_models.training.lusifer.decoder.Bidirectional",
    "xalign_models.training.lusifer.module.Lusifer",
)
"""Our module types that the ``modules.json`` of a saved model may name. They are a file format: do not move them."""
