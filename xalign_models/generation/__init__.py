"""Text that language and translation models write: translations, and judgements of them."""
