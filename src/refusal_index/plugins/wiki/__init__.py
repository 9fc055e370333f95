"""Building a PreciseWikiQA set: short questions of fact that models write about sections of Wikipedia.

The procedure as pure functions: pages are read and cut into sections, sections are drawn by a seed, a model's two
replies about each are judged, and what is left is frozen in a file with a record of how it came about. Whoever carries
the requests to a model need not know any of it. The design is that of HalluLens' PreciseWikiQA; the wording is this
project's own.
"""
