"""Looking at preference data: pages of comparisons by filter, their counts, and one comparison whole.

For people who wait: each function reads what its answer needs, in one short unit of work, at millions of comparisons.
"""
