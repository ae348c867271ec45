#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/image.h"
#include "runs/field_errors.h"

namespace kindling {

// Returns the bytes of a regular file; nothing if it is missing, larger, of another kind or cannot be read.
// For lists of many files, which none of them may stop; read_file() reports errors instead.
KINDLING_API std::optional<std::string> small_file(const std::filesystem::path& path, std::size_t max_bytes);

// Returns the last lines of a regular file, `max_bytes` at most and beginning with a whole line; empty as
// above. Drops an incomplete last line.
std::string end_of_file(const std::filesystem::path& path, std::size_t max_bytes);

// A line of a run's log.txt that a reader of the run should see.
struct RunEvent {
  std::string time, level, text;  // "2026-03-01 12:00:00.123", "warning"
};

// The rows of a CSV file, each with as many cells as the first one, which has the titles. Empty: no file.
using CsvRows = std::vector<std::vector<std::string>>;

// The texts in a run directory. Whatever is missing or cannot be read is empty.
struct KINDLING_API RunFiles {
  std::filesystem::path folder{};
  // run.json, with the keys of inner objects after a dot: {"best.name", "val_acc"}.
  std::vector<std::pair<std::string, std::string>> summary{};
  std::string config{};                            // config.toml
  std::vector<std::string> commands{};             // command.txt, a line per start
  std::vector<std::vector<std::string>> layers{};  // model.csv: name, type, input, output, parameters
  std::vector<RunEvent> events{};                  // warnings, errors, resumes and restarts, the latest ones
  std::size_t num_events = 0;                      // of them in the part of log.txt that was read
  // confusion_matrix.csv, class_scores.csv, calibration.csv, residuals.csv, worst_predictions.csv and
  // rollout.csv, if run.json says that the run has a validation report.
  CsvRows confusion{}, class_scores{}, calibration{}, residuals{}, worst{}, rollout{};
  FieldErrors field_errors{};           // of field_errors.npy, likewise
  std::vector<Image> worst_pictures{};  // of worst_pictures.npy, in the order of `worst`
  std::vector<Image> worst_masks{};     // of worst_masks.npy: of each sample its labels, then its prediction

  std::string value(std::string_view key) const;  // of the summary; empty: not found
  // "digits/0001"
  std::string name() const;
};

// Returns the keys and values that a line of command.txt sets: "trainer.max_epochs=3", "--seed 1".
std::vector<std::pair<std::string, std::string>> overrides_of(std::string_view command);

// Reads the files. Never throws for their contents. `summary` replaces the text of run.json unless it is
// empty.
KINDLING_API RunFiles read_run_files(const std::filesystem::path& folder, std::string_view summary = {});

// Writes model.csv atomically. Throws Error.
void write_layers(const std::filesystem::path& folder, const std::vector<std::vector<std::string>>& layers);

}  // namespace kindling
