#pragma once

#include <memory>

#include "kindling/training/validation_report.h"

namespace kindling {

// What a report says about the outputs of one kind of model.
class ValidationStatistics {
 public:
  virtual ~ValidationStatistics() = default;

  // Counts a batch, whose targets and outputs are in the unit of the data. On its device, without a wait.
  virtual void take(const Prediction& batch) = 0;
  // Copies the results to the host.
  virtual void write_to(ValidationReport& report) const = 0;
};

// Returns nullptr for a model that is neither a classifier nor a regressor.
std::unique_ptr<ValidationStatistics> validation_statistics(const Module& model,
                                                            const ValidationReportOptions& options);

}  // namespace kindling
