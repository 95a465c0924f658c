"""The chart: what it renders, and that what it installs is enough, and no more than needed."""
