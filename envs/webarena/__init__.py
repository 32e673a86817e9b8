"""WebArena-Shopping (Zhou et al. 2024): tasks in an online shop, acted in through a real browser."""
