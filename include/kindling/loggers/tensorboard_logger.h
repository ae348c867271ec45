#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/loggers/logger.h"

namespace kindling {

// Writes the records as scalars for TensorBoard: the tags are the names of the values, the step is
// global_step. The value is a float32; invalid UTF-8 in names becomes U+FFFD. Epoch records have the
// additional tag `epoch`. A tag has one point per step: where the record of a step already has a value, such
// as `lr`, the epoch that ends with this step does not repeat it. Each fit writes a file
// events.out.tfevents.* of its own; a fit that resumes removes the records from the former files that it will
// write again, so that no point appears twice. Records reach the system with the first one after two seconds,
// with an epoch, and before a checkpoint is saved.
class KINDLING_API TensorBoardLogger : public Logger {
 public:
  // `folder` exists and belongs to one run: a resume truncates the files events.out.tfevents.* that Kindling
  // has written there, and skips those of other programs. The file is created with the first record. Throws
  // nothing; later calls throw Error if a file cannot be written or read.
  explicit TensorBoardLogger(std::filesystem::path folder);
  ~TensorBoardLogger() override;

  // Shows `markdown` under the heading `name` of the tab "Text". Call it before the fit.
  void add_text(const std::string& name, std::string markdown);
  // Makes the run a row of the tab "HParams": `values` are pairs of a name and a value, which is shown as a
  // number if its text is one, as true or false, else as text. `metrics` are names of logged values. Call it
  // before the fit. The row shows success if the fit finishes or stops early, failure if it diverges or
  // throws, and no status if it is stopped otherwise or killed, because such a run can resume.
  void add_hyperparameters(std::vector<std::pair<std::string, std::string>> values,
                           std::vector<std::string> metrics);

  void write(const Record& record) override;
  void finish() override;
  void finalize(FitStatus status) override;
  void sync() override;
  // Truncates each file before its first later record, and removes what cannot be read after it. Logs what
  // was damaged.
  void resume_at(const Progress& at) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kindling
