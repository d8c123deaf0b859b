"""What trainings have in common: one that is stopped at any moment goes on, and what it writes says how it was made.

The loops are sentence-transformers' trainer's. ``session`` is the frame around a training, from the check whether it
was done already to the saved model; ``trainer`` the trainer with checkpoints of the trained weights alone; ``records``
what is kept on disk beside them; ``losses`` the contrastive loss; ``schedulers`` the learning rate's; ``processes`` who
writes.
"""
