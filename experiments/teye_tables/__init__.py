"""Compare tables 1 and 4 to 11 of the MCBN paper (Teye, Azizpour, Smith 2018) with our results.

    python -m experiments teye-table6          # prints table 6
    python -m experiments teye-verdicts        # prints a summary of all tables

Needs the rows of `python -m experiments uci --preset paper --device cuda`, by default in results/uci_paper.csv.

Method of comparison. A run is one split and one seed, 25 in all; errors are std / sqrt(runs), as in the paper. The runs
share five test sets, so both errors and p-values are smaller than for independent runs, in the paper and here. "same"
means: within two standard errors of the difference, sqrt(ours^2 + theirs^2), after subtracting half a unit of the
paper's last printed digit (it prints 0.04 for everything between 0.035 and 0.045).

Inconsistencies in the paper's tables:

- The p-values of tables 4 and 5 follow from their means and standard errors by a two-sided t-test over 25 runs. The
  exceptions are 10 of MNF's 16 (boston, concrete, energy, kin8nm and yacht, in both tables), and MCBN's CRPS on
  protein, printed "2.77-12" (2.77E-19 would fit). Yacht's PLL of MCDO is printed as 0.197, but should be 0.198.
- Table 1 marks MCBN's PLL on power with two stars, but p = 0.0272 in table 5 gives one. Its MNF column has 0.53
  (kin8nm) and 0.94 (wine) for CRPS and -0.87 (power) for PLL, where tables 4 and 5 have 0.52, 0.93 and -0.86.
- M = 128 with T = 100 is in tables 8 and 9 and again in 10 and 11, with other numbers: energy's CRPS 11.1 and 4.2, its
  PLL -14.5 and -30.5, concrete's PLL 0.0 and 7.1. The tables give no standard errors, but this shows the variation.
- The text calls tables 4 to 11 "Appendix Tables 2 to 9".
"""

from .acceptance import verdicts as verdicts
from .cells import TABLES as TABLES, Cell as Cell, compare as compare
from .layout import markdown as markdown, render as render
from .rows import read_rows as read_rows
