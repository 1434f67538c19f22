"""The papers' numbers: as many as they print, and those of a few cells read off the pages by hand."""

from collections import Counter

from experiments.data import UCI_SETS
from experiments.paper_facts import fact, paper_facts


def test_every_table_is_whole():
    assert Counter((one.paper, one.table) for one in paper_facts()) == {
        ("teye2018", 2): 9,
        ("teye2018", 4): 3 * 8,
        ("teye2018", 5): 3 * 8,
        ("teye2018", 6): 2 * 3 * 8,
        ("teye2018", 7): 5 * 8,
        ("teye2018", 8): 8 * 8 - 6,  # six batch sizes are too large for their sets
        ("teye2018", 9): 8 * 8 - 6,
        ("teye2018", 10): 3 * 8,
        ("teye2018", 11): 3 * 8,
        ("mukhoti2020", 1): 19,
        ("atanov2018", 1): 26,
    }
    assert len(set(map(repr, paper_facts()))) == 354, "no cell is there twice"
    regression = [one for one in paper_facts("teye2018") if one.table != 2]
    assert {one.dataset for one in regression} == set(UCI_SETS)
    for one in regression:
        assert (one.standard_error is None) == (one.table >= 8)
        assert (one.p_value is None) == (one.table not in (4, 5))


def test_cells_read_off_the_page():
    for where, settings, expected in (
        ((4, "yacht", "MCBN", "normalised_crps_percent"), {}, (-56.39, 14.27, 5.94e-4)),
        ((4, "energy", "MCDO", "normalised_crps_percent"), {}, (1.37, 0.89, 0.138)),
        ((5, "concrete", "MCBN", "normalised_pll_percent"), {}, (-36.36, 12.12, 6.19e-3)),
        ((5, "power", "MCBN", "normalised_pll_percent"), {}, (0.33, 0.14, 2.72e-2)),
        ((5, "yacht", "MNF", "normalised_pll_percent"), {}, (46.19, 4.45, 2.47e-7)),
        ((6, "boston", "MCBN", "crps"), {}, (1.45, 0.02, None)),
        ((6, "yacht", "MCDO", "crps"), {}, (0.32, 0.01, None)),
        ((6, "yacht", "MCDO", "pll"), {}, (-2.57, 0.69, None)),
        ((7, "concrete", "BN", "rmse"), {}, (4.89, 0.08, None)),
        ((7, "yacht", "DO", "rmse"), {}, (0.72, 0.04, None)),
        ((8, "energy", "MCBN", "normalised_crps_percent"), {"batch_size": 128}, (11.1, None, None)),
        ((9, "concrete", "MCBN", "normalised_pll_percent"), {"batch_size": 16}, (-528.4, None, None)),
        ((10, "wine", "MCBN", "normalised_crps_percent"), {"passes": 100}, (-0.4, None, None)),
        ((11, "energy", "MCBN", "normalised_pll_percent"), {"passes": 50}, (-47.3, None, None)),
        ((2, "cifar10", "softmax", "pll"), {}, (-0.32, None, None)),
    ):
        one = fact("teye2018", *where, **settings)
        assert (one.value, one.standard_error, one.p_value) == expected
