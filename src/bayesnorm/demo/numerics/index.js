// The modules that both the page and its worker use.

import { Fit } from "./fitting.js";
import { TrainingBatches } from "./drift.js";
