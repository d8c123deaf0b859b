"""LiRA: translations chosen by an actor (Arca), two paths fused into one embedding (LaSR), and its theory."""
