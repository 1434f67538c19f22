"""Special functions: SciPy's where it is installed, and those of `special_functions.py` elsewhere."""

try:
    from scipy.special import (
        chdtrc as chdtrc,
        digamma as digamma,
        gammainc as gammainc,
        gammaincc as gammaincc,
        gammaln as gammaln,
        ndtr as ndtr,
        ndtri as ndtri,
        stdtr as stdtr,
    )
except ImportError:
    from .special_functions import (
        chdtrc as chdtrc,
        digamma as digamma,
        gammainc as gammainc,
        gammaincc as gammaincc,
        gammaln as gammaln,
        ndtr as ndtr,
        ndtri as ndtri,
        stdtr as stdtr,
    )
