"""May it be merged: plans and requests in; limits, differences and locks judged, in the formats of CI, out."""
