"""ScienceWorld (Wang et al. 2022): tasks of elementary science in a small text world of rooms and things."""
