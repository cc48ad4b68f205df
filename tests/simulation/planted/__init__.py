"""Bugs that are planted in the product, one at a time: the judge of the simulation has to refuse what follows from
each.

Owns: `table` of the bugs, `recipes` of the faults under which they show, `known` seeds, the command.
Does not know: how a change is planted, how a history is played or judged.
"""
