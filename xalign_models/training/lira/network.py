"""LiRA's trained parts around two checkpoints: they turn a text and its candidates into one embedding."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from xalign_models.backbones.checkpoint import is_decoder_only
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.errors import ModelError
from xalign_models.training.lira import actor as actors
from xalign_models.training.lira.actor import Actor
from xalign_models.training.lira.adaptor import Adaptor, AlignedStreams, cosines
from xalign_models.training.lira.config import Design, Paths, Stream
from xalign_models.training.lira.ranks import exact

Features = dict[str, Any]


class ArcaOutput(NamedTuple):
    """Outputs of both paths and the actor for n texts with K candidates each."""

    multilingual: Tensor
    """(n, S, d_h): the multilingual stream after the adaptor."""
    english: Tensor
    """(n, K, S, d_h): the candidates' streams."""
    similarity: Tensor
    """(n, K): cosines of the two paths."""
    log_probabilities: Tensor
    """(n, K): log probabilities of the actor."""


def temporal_pool(tokens: Tensor, mask: Tensor, bins: int) -> Tensor:
    r"""Eq. 3, adaptive average pooling over a text's own tokens; padding on either side has no effect.

    Bin s averages tokens ``floor(s L / S)`` to ``ceil((s + 1) L / S) - 1`` of the L unmasked ones, as torch's
    ``adaptive_avg_pool1d`` does; with fewer tokens than bins some tokens are in several bins. Without tokens
    all bins are zero.

    Args:
        tokens: (b, l, d).
        mask: (b, l), true at tokens.
        bins: S.

    Returns:
        (b, S, d), float32 at least.
    """
    tokens, mask = exact(tokens), mask.bool()
    length = mask.sum(dim=1)[:, None]  # (b, 1)
    position = (mask.long().cumsum(dim=1) - 1)[:, None]  # (b, 1, l)
    s = torch.arange(bins, device=tokens.device)
    start = (s * length).div(bins, rounding_mode="floor")[..., None]  # (b, S, 1)
    end = -(-(s + 1) * length).div(bins, rounding_mode="floor")[..., None]
    inside = (position >= start) & (position < end) & mask[:, None]  # (b, S, l)
    weights = inside.to(tokens.dtype) / inside.sum(dim=-1, keepdim=True).clamp(min=1)
    clean = tokens.masked_fill(~mask[..., None], 0)  # a NaN at padding times a weight of zero would be a NaN
    with torch.autocast(tokens.device.type, enabled=False):
        return weights @ clean


class Fusion(nn.Module):
    """A projection into a transformer's inputs and a type vector per stream; the caller passes the transformer.

    The streams are concatenated, so the transformer attends across them. The output is the last position of a causal
    transformer, which sees all positions, or the mean of any other transformer. If the widths are equal, the projection
    starts as the identity, scaled to the transformer's input embeddings: the untrained fusion reads streams like words.

    Args:
        width: Width of the streams.
        inner: Width of the transformer's input embeddings.
        causal: Whether the transformer's attention is causal.
        scale: Mean norm of the transformer's input embeddings.
    """

    def __init__(self, width: int, inner: int, *, causal: bool, scale: float) -> None:
        super().__init__()
        self.causal = causal
        self.projection = nn.Linear(width, inner)
        self.kind = nn.Embedding(2, inner)
        nn.init.zeros_(self.projection.bias)
        nn.init.normal_(self.kind.weight, std=0.02 * scale / inner**0.5)
        if width == inner:
            with torch.no_grad():
                self.projection.weight.copy_(torch.eye(width) * scale)
        else:
            nn.init.normal_(self.projection.weight, std=scale / inner**0.5)

    def forward(self, transformer: Any, streams: Sequence[tuple[int, Tensor]]) -> Tensor:
        """(n, d_m) of streams (n, S, width), each with its number: 0 multilingual, 1 English."""
        inputs = torch.cat([self.projection(stream) + self.kind.weight[number] for number, stream in streams], dim=1)
        states: Tensor = transformer(
            inputs_embeds=inputs.to(transformer.dtype),
            attention_mask=torch.ones(inputs.shape[:2], dtype=torch.long, device=inputs.device),
        ).last_hidden_state
        return states[:, -1] if self.causal else states.mean(dim=1)


class Network(nn.Module):
    """Two paths into one space, an actor that chooses a translation, and the fusion of both streams.

    ``encoder`` is the multilingual path g. ``english`` is the English path h, whose transformer also fuses. ``rest``
    are the modules after it in the published English model, for a residual.

    Raises:
        ModelError: There is a residual, and the published English model's vectors differ in width from its transformer.
    """

    def __init__(
        self,
        encoder: LanguageTransformer,
        english: LanguageTransformer,
        design: Design,
        seed: int = 0,
        rest: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.encoder, self.english, self.design = encoder, english, design
        self.lora: dict[str, int] | None = None
        self.tuned: set[str] = set()
        english.model.config.use_cache = False
        table = english.model.get_input_embeddings().weight
        width = table.shape[1] if design.stream is Stream.EMBEDDINGS else english.get_embedding_dimension()
        inner = table.shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.adaptor = Adaptor(encoder.get_embedding_dimension(), width, design.sides, design.sentence)
            self.actor = Actor()
            causal = is_decoder_only(english.model.config)
            self.fusion = Fusion(width, inner, causal=causal, scale=self._scale())
        if design.residual:
            self.gate = nn.Parameter(torch.zeros(english.get_embedding_dimension()))
            self.rest = nn.ModuleList(rest)
            modules: list[Any] = [part for part in rest if hasattr(part, "get_embedding_dimension")]
            widths = [part.get_embedding_dimension() for part in modules]
            if widths and widths[-1] != len(self.gate):
                raise ModelError(
                    f"design.residual: the English model's vectors have {widths[-1]} dimensions and its transformer "
                    f"{len(self.gate)}; choose another design.english."
                )
        self.centre: Tensor
        self.register_buffer("centre", torch.zeros(width))
        self.requires_grad_(False)
        self.eval()

    @torch.no_grad()
    def _scale(self) -> float:
        """Mean norm of the English transformer's input embeddings, the scale of the fusion's projection."""
        embedding = self.english.model.get_input_embeddings()
        sample = torch.arange(0, embedding.weight.shape[0], max(1, embedding.weight.shape[0] // 1000))
        return float(exact(embedding(sample.to(embedding.weight.device))).norm(dim=-1).mean())

    @property
    def device(self) -> torch.device:
        """The device of the trained parts."""
        return next(self.adaptor.parameters()).device

    def train(self, mode: bool = True) -> Self:
        """Training mode for trained parts; frozen parts use no dropout."""
        super().train(mode)
        for part in (self.encoder, self.english):
            if not any(weight.requires_grad for weight in part.parameters()):
                part.eval()
        return self

    def fit_centre(self, batches: Iterable[Features]) -> None:
        """Set the centre to the mean English token, and the adaptor's gain to the typical length of a centred bin.

        The token vectors of all texts share a large mean, which makes the cosine with any English text high: the mean
        alone would satisfy the anchor loss, whatever the text says. In shared mode the gain stays unset.
        """
        self.centre.zero_()
        batch_tokens = [
            (tokens[mask].cpu().double(), temporal_pool(tokens, mask, self.design.bins))
            for tokens, mask in map(self._english_tokens, batches)
        ]
        total = sum(len(tokens) for tokens, _ in batch_tokens)
        if not total:
            return
        self.centre.copy_(torch.stack([tokens.sum(dim=0) for tokens, _ in batch_tokens]).sum(dim=0) / total)
        if self.design.sides is AlignedStreams.ONE_SIDED:
            squares = torch.cat([(bins - self.centre).square().mean(dim=-1).flatten() for _, bins in batch_tokens])
            self.adaptor.gain.copy_(squares.mean().sqrt())

    def multilingual_bins(self, features: Features) -> Tensor:
        """(n, S, d_g): eq. 3 of the multilingual path."""
        states = self.encoder.embed_tokens(dict(features))[self.encoder.module_output_name]
        return temporal_pool(states, features["attention_mask"], self.design.bins)

    def english_bins(self, features: Features) -> Tensor:
        """(n, S, d_h): eq. 3 of the frozen English path; zeros for a text without tokens."""
        tokens, mask = self._english_tokens(features)
        return temporal_pool(tokens - self.centre, mask, self.design.bins)

    @torch.no_grad()
    def _english_tokens(self, features: Features) -> tuple[Tensor, Tensor]:
        """The English stream (n, l, d_h) and its mask (n, l)."""
        if self.design.stream is Stream.STATES:
            return exact(self._english_states(features)), features["attention_mask"].bool()
        ids, mask = features["input_ids"], features["attention_mask"].bool()
        special = torch.tensor(self.english._special_ids(), device=ids.device)
        return exact(self.english.model.get_input_embeddings()(ids)), mask & ~torch.isin(ids, special)

    @torch.no_grad()
    def english_sentence(self, features: Features) -> Tensor:
        """Eq. 27: masked mean of the untrained English model's last hidden states, (n, d), to measure eps2."""
        return temporal_pool(self._english_states(features), features["attention_mask"], 1)[:, 0]

    @torch.no_grad()
    def published(self, features: Features) -> Tensor:
        """The untrained English model's own vectors (n, d): all its modules on its transformer's output."""
        with self._untuned():
            features = self.english(dict(features))
            for module in self.rest:
                features = module(features)
        return exact(features["sentence_embedding"])

    def _english_states(self, features: Features) -> Tensor:
        """Last hidden states (n, l, d) of the English transformer without LoRA."""
        with self._untuned():
            states: Tensor = self.english.embed_tokens(dict(features))[self.english.module_output_name]
        return states

    @contextmanager
    def _untuned(self) -> Iterator[None]:
        if self.lora:
            self.english.model.disable_adapters()
        try:
            yield
        finally:
            if self.lora:
                self.english.model.enable_adapters()

    def choose(self, text: Features, candidates: Features, scores: Tensor, mask: Tensor) -> ArcaOutput:
        """Both paths of n texts and the actor's probabilities for their candidates (eqs. 3 to 6).

        The candidates' features have n K rows, text by text; scores are (n, K, 3), the mask (n, K).
        """
        n, k = mask.shape
        multilingual = self.adaptor.multilingual(self.multilingual_bins(text))
        english = self.adaptor.english(self.english_bins(candidates)).reshape(n, k, self.design.bins, -1)
        similarity = cosines(self.adaptor.pool(multilingual)[:, None], self.adaptor.pool(english))
        observed = similarity if self.design.embedding_critic else torch.zeros_like(similarity)
        return ArcaOutput(multilingual, english, similarity, self.actor(actors.features(scores, observed), mask))

    def streams(
        self, text: Features, candidates: Features, scores: Tensor, mask: Tensor, own: Features
    ) -> tuple[Tensor, ...]:
        """The streams of a text and of its most probable candidate, (n, S, d_h) each, of unit length.

        With a residual, also the English model's own vector (n, d_m) of that candidate, of unit length; ``own`` are the
        candidates' features with the English model's prompt.
        """
        choice = self.choose(text, candidates, scores, mask)
        best = choice.log_probabilities.argmax(dim=1)
        rows = torch.arange(len(best), device=best.device)
        fused_streams = unit(choice.multilingual), unit(choice.english[rows, best])
        if not self.design.residual:
            return fused_streams
        places = rows * mask.shape[1] + best
        return *fused_streams, unit(self.published({name: value[places] for name, value in own.items()}))

    def fuse(self, multilingual: Tensor, english: Tensor, residual: Tensor | None = None) -> Tensor:
        """Embeddings (n, d_m) of unit length from two streams (n, S, d_h) and, if given, the residual (n, d_m)."""
        parts = {Paths.MULTILINGUAL: multilingual, Paths.ENGLISH: english}
        streams = [(i, stream) for i, (path, stream) in enumerate(parts.items()) if self.design.paths in (path, "both")]
        fused = unit(self.fusion(self.english.model, streams))
        return fused if residual is None else unit(residual + self.gate * fused)

    def forward(self, text: Features, candidates: Features, scores: Tensor, mask: Tensor, own: Features) -> Tensor:
        """Embeddings (n, d_m) of unit length of n texts."""
        return self.fuse(*self.streams(text, candidates, scores, mask, own))


def unit(x: Tensor) -> Tensor:
    """``x / max(||x||, 1e-12)`` along the last axis, float32 at least."""
    return normalize(exact(x), dim=-1, eps=1e-12)
