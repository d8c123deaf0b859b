"""Private names of transformers and sentence-transformers that training needs, behind xalign's public names."""

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from xalign_models.backbones.transformer import LanguageTransformer

NAMES = (
    (SentenceTransformerTrainingArguments, "_n_gpu"),
    (SentenceTransformerTrainer, "_clip_grad_norm"),
    (SentenceTransformerTrainer, "_save_checkpoint"),
    (SentenceTransformerTrainer, "_load_from_checkpoint"),
    (LanguageTransformer, "_load_model"),
)
"""Class and private name."""


def use_one_gpu(arguments: SentenceTransformerTrainingArguments) -> None:
    """Train on one GPU even if the process sees several; ``n_gpu`` has no setter."""
    arguments._n_gpu = 1


class OpenTrainer(SentenceTransformerTrainer):
    """The trainer, with public names for three of its steps so that a subclass can override them."""

    def clip_gradients(self, model: Any) -> Any:
        """Clip the gradients and return their norm before clipping."""
        return super()._clip_grad_norm(model)

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Write weights, optimiser and the trainer's state."""
        super()._save_checkpoint(*args, **kwargs)

    def load_checkpoint(self, checkpoint: Path) -> None:
        """Load the weights of a checkpoint."""
        super()._load_from_checkpoint(str(checkpoint))

    def _clip_grad_norm(self, model: Any) -> Any:
        return self.clip_gradients(model)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self.save_checkpoint(*args, **kwargs)

    def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
        self.load_checkpoint(Path(checkpoint_path))


class BareTransformer(LanguageTransformer):
    """A transformer module whose subclass makes the model; the public constructor always loads weights."""

    def make_model(self, config: Any) -> Any:
        """The model of a configuration."""
        raise NotImplementedError

    def _load_model(self, model_name_or_path: str, transformer_task: Any, config: Any, *_: Any, **__: Any) -> Any:
        return self.make_model(config)
