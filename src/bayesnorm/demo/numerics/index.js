// The modules that both the page and its worker use.

import { ShiftProblem } from "./shifting.js";
import { imageOf } from "./strokes.js";
