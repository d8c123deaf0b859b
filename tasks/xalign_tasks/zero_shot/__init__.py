"""Zero-shot classification: trained on English, tested on every language."""

from xalign_tasks.zero_shot.reviews import AmazonReviewsZeroShot, AmazonStarsZeroShot, TweetSentimentZeroShot
from xalign_tasks.zero_shot.sib200 import SIB200ZeroShot
from xalign_tasks.zero_shot.task import ZeroShotTask
from xalign_tasks.zero_shot.xnli import XNLIZeroShot

__all__ = [
    "AmazonReviewsZeroShot",
    "AmazonStarsZeroShot",
    "SIB200ZeroShot",
    "TweetSentimentZeroShot",
    "XNLIZeroShot",
    "ZeroShotTask",
]
