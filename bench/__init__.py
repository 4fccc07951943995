"""One command, one table: Clew beside the bare parts it is made of, and beside its peers.

    make bench                      everything, in a few minutes
    make bench ONLY=append,fork     some groups

Machines differ and this one may be busy, so what counts are ratios: both sides of each are
measured in the same run, in turns, and the figure is the median over the rounds.

Reading tour: `groups/` has one module for each group of figures, `peers/` one for each peer,
`timing` the turns, `workshop` the stores that are measured, `report` the table and the file.
"""
