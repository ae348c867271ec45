#pragma once

#include <string>
#include <vector>

#include "charts/html_page.h"
#include "kindling/base/export.h"
#include "kindling/charts/chart.h"
#include "runs/run_files.h"

// The validation report of a run (validation_report.h), as far as its directory has it.
namespace kindling {

// Returns the confusion matrix, the scores of classes, the calibration, the residuals, the errors of
// fields, those of rollouts and the worst predictions, a section each.
std::vector<PageSection> validation_sections(const RunFiles& files);

// Returns the reliability diagram of a classifier, or the residuals of the first targets of a regression.
KINDLING_API std::vector<Chart> validation_charts(const RunFiles& files);

// Returns the matrix of at most 20 classes, the errors of fields and the first worst predictions as tables;
// empty without a report.
KINDLING_API std::string validation_text(const RunFiles& files);

}  // namespace kindling
