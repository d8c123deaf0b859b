"""Stage 1: the multilingual path is anchored to the English path while the actor learns to choose translations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import torch
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from xalign_models.errors import ModelError
from xalign_models.generation.journal import batched
from xalign_models.progress import live
from xalign_models.training.lira import actor as actors
from xalign_models.training.lira.adaptor import CollapseMonitor, anchor_loss, cosines
from xalign_models.training.lira.candidates import Candidates
from xalign_models.training.lira.config import ArcaConfig
from xalign_models.training.lira.data import MEASURED
from xalign_models.training.lira.module import LiRA, unpack
from xalign_models.training.lira.network import ArcaOutput
from xalign_models.training.objective import Objective, TrainingOutcome
from xalign_models.training.processes import gathered, own_rows
from xalign_models.training.records import finite

CENTRED = 2048
"""Maximum number of translations for the mean token, approximately."""
APART = 32
"""Minimum number of held-out texts in a batch: each is compared with the others' translations."""
STEP = ("loss", "policy_loss", "anchor_loss", "reward")
"""Measurements of a step that the history keeps."""


class Arca(Objective):
    """The objective of stage 1; a row of the training set is the position of a text with its candidates.

    Raises:
        ModelError: No example has a translation.
    """

    def __init__(self, module: LiRA, examples: Candidates, held_out: Candidates, config: ArcaConfig) -> None:
        super().__init__()
        if not examples.mask.any():
            raise ModelError(
                "No text of stage arca has a translation: name design.translators, or arca.extra, e.g. "
                "--set 'arca.extra=[reference:ntrex]'."
            )
        self.module, self.examples, self.config = module, examples, config
        self.held_out = held_out.rows(range(0, len(held_out.texts), max(1, len(held_out.texts) // MEASURED)))
        network = module.network
        if module.design.centre:
            self._fit_centre()
        encoder = dict(network.encoder.named_parameters()) if config.encoder_rate else {}
        if not config.train_embeddings:
            table = network.encoder.model.get_input_embeddings().weight
            encoder = {name: weight for name, weight in encoder.items() if weight is not table}
        network.tuned |= {f"encoder.{name}" for name in encoder}
        self.parts: dict[str, list[nn.Parameter]] = {
            "actor": list(network.actor.parameters()),
            "encoder": list(encoder.values()),
            "adaptor": list(network.adaptor.parameters()),
        }
        for weights in self.parts.values():
            for weight in weights:
                weight.requires_grad_(True)
        self.monitor = CollapseMonitor()
        self.draws = torch.Generator().manual_seed(config.seed)
        self._measured: dict[str, Any] = {}
        self._batches = list(map(list, batched(range(len(self.held_out.texts)), max(APART, config.batch_size))))
        self._meanings = self._translated_meanings()

    def _fit_centre(self) -> None:
        device = self.module.network.device
        texts = [text for row in self.examples.texts for text in row]
        usable = list(compress(texts, self.examples.mask.flatten().tolist()))
        batches = batched(usable[:: max(1, len(usable) // CENTRED)], self.config.batch_size)
        tokenized = map(self.module.tokenize_english, batches)
        self.module.network.fit_centre(batch_to_device(batch, device) for batch in tokenized)

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Tokenise texts and their candidates."""
        return self.module.features_of(self.examples.rows([row["row"] for row in rows]))

    def loss(self, features: dict[str, Any]) -> Tensor:
        """Eq. 9: ``L = L_RL + eta L_anchor``, with the anchor on the drawn candidate."""
        text, candidates, scores, mask = unpack(features)
        choice = self.module.network.choose(text, candidates, scores, mask)
        log_probabilities, similarity = gathered(choice.log_probabilities), gathered(choice.similarity)
        scores, mask = gathered(scores), gathered(mask.to(torch.uint8)).bool()
        action = actors.sample(log_probabilities, self.draws)
        rewards = actors.reward(scores, similarity, self.config.reward)
        policy = actors.policy_loss(log_probabilities, action, rewards, mask, baseline=self.config.baseline)
        usable = mask.any(dim=1)  # a text without a translation has nothing to be anchored to
        sentences = self._sentences(choice, action[own_rows(len(action))])
        multilingual, english = (gathered(side)[usable] for side in sentences)
        anchor = anchor_loss(multilingual, english)
        self.monitor.update(multilingual.detach(), english.detach())
        contested = rewards.gather(1, action[:, None])[:, 0][mask.sum(dim=1) > 1]
        self._measured = {
            "policy_loss": float(policy.detach()),
            "anchor_loss": float(anchor.detach()),
            "reward": float(contested.mean()) if len(contested) else None,
        }
        return policy + self.config.eta * anchor

    def step(self) -> dict[str, Any]:
        """Both losses, and the mean reward of the texts with more than one candidate."""
        return self._measured

    def _sentences(self, choice: ArcaOutput, action: Tensor) -> tuple[Tensor, Tensor]:
        """Eq. 4 of both paths, (n, D) each, for the chosen candidates."""
        rows = torch.arange(len(action), device=action.device)
        pool = self.module.network.adaptor.pool
        return pool(choice.multilingual), pool(choice.english[rows, action])

    @torch.no_grad()
    def _translated_meanings(self) -> tuple[Tensor, Tensor]:
        """Eq. 27 for the held-out texts (n, d) and their candidates (n, K, d); constant during training."""
        network = self.module.network.eval()
        originals, translations = list[Tensor](), list[Tensor]()
        for rows in live(self._batches, desc="measure"):
            batch = self.held_out.rows(rows)
            flat = [text for row in batch.texts for text in row]
            for texts, pieces in ((batch.originals, originals), (flat, translations)):
                features = batch_to_device(self.module.tokenize_english(texts), network.device)
                pieces.append(network.english_sentence(features).cpu())
        if not originals:
            return torch.zeros(0, 1), torch.zeros(0, 1, 1)
        meanings = torch.cat(originals)
        return meanings, torch.cat(translations).reshape(len(meanings), -1, meanings.shape[1])

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Similarity, mismatched similarity, eps1 (eq. 25), eps2 (eq. 28), reward and choices on the held-out texts."""
        network = self.module.network.eval()
        trained = {"train_similarity": self.monitor.matched, "train_mismatched": self.monitor.mismatched}
        collapsed = self.monitor.collapsed
        self.monitor = CollapseMonitor()
        if not self.held_out.texts:
            return {**trained, "collapsed": collapsed}
        monitor, among = CollapseMonitor(), CollapseMonitor()
        distances, drifts, rewards, chosen = [], [], [], []
        for rows in self._batches:
            features = batch_to_device(self.module.features_of(self.held_out.rows(rows)), network.device)
            text, candidates, scores, mask = unpack(features)
            choice = network.choose(text, candidates, scores, mask)
            usable = mask.any(dim=1)
            best = choice.log_probabilities.argmax(dim=1)
            multilingual, english = self._sentences(choice, best)
            monitor.update(multilingual[usable], english[usable])
            among.update(english[usable], english[usable])
            distances.append((multilingual - english).norm(dim=1)[usable])
            original, translations = (meanings[rows] for meanings in self._meanings)
            drifts.append((1 - cosines(original, translations[torch.arange(len(rows)), best.cpu()]))[usable.cpu()])
            gained = actors.reward(scores, choice.similarity, self.config.reward)
            rewards.append(gained.gather(1, best[:, None])[:, 0][usable])
            chosen += best[usable].tolist()
        shares = [chosen.count(k) / len(chosen) for k in range(self.held_out.mask.shape[1]) if chosen]
        means = {
            name: float(torch.cat(values).mean())
            for name, values in (("epsilon_1", distances), ("epsilon_2", drifts), ("held_out_reward", rewards))
        }
        return {
            **trained,
            "similarity": monitor.matched,
            "mismatched": monitor.mismatched,
            "english_mismatched": among.mismatched,
            **means,
            "chosen": shares,
            "collapsed": collapsed or monitor.collapsed,
        }

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingOutcome | None:
        """Compare how much nearer a text is to its own translation than to another's, before and after training."""
        if "similarity" not in last:
            return None
        before, after = (entry["similarity"] - entry["mismatched"] for entry in (first, last))
        if math.isnan(before + after):
            return None
        text = f"A held-out text is nearer to its own translation than to another's by a cosine of {after:.2f}"
        learnt = after > before and not last["collapsed"]
        return TrainingOutcome.of(learnt, f"{text} ({before:.2f} before)")

    def state(self) -> dict[str, Any]:
        """State of the actor's generator, and the sums of the epoch so far."""
        return {"draws": self.draws.get_state(), "sums": vars(self.monitor)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.draws.set_state(state["draws"])
        vars(self.monitor).update(state["sums"])


def history(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Measurements before the first and after each epoch, with the means of the epoch's steps."""
    epochs: list[dict[str, Any]] = []
    steps: list[Mapping[str, Any]] = []
    for entry in log:
        if entry["kind"] == "step":
            steps.append(entry)
        elif entry["kind"] == "measure":
            columns = {name: [step[name] for step in steps if step.get(name) is not None] for name in STEP}
            means = {name: sum(values) / len(values) for name, values in columns.items() if values}
            plain = {name: value for name, value in finite(entry).items() if name != "kind"}
            epochs.append({**plain, "epoch": math.ceil(entry["epoch"]), **means})
            steps = []
    return epochs
