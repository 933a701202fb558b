"""Reading preference data: pages of comparisons by filter, their counts, and all of one comparison.

For interactive use: each function reads only what it returns, in one short unit of work, at millions of comparisons.
"""
