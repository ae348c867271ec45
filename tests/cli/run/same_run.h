#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands/program_run.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Two runs are the same if weights, every tensor of the last checkpoint and every line of the metrics are
// bit-identical, apart from times.
inline const std::set<std::string> kTimes{"epoch_time_s",      "samples_per_s",     "data_wait_share",
                                          "step_time_s/rank0", "step_time_s/rank1", "step_time_s/rank2",
                                          "step_time_s/rank3"};

inline std::vector<nlohmann::json> records_of(const std::filesystem::path& run) {
  std::istringstream lines(text_of(run / "metrics.jsonl"));
  std::vector<nlohmann::json> records;
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line);
    for (const std::string& name : kTimes) record.erase(name);
    records.push_back(std::move(record));
  }
  return records;
}

// Rows of cells, those of times empty.
inline std::vector<std::vector<std::string>> csv_of(const std::filesystem::path& run) {
  std::istringstream lines(text_of(run / "metrics.csv"));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::vector<std::string>& row = rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
    if (line.ends_with(',')) row.emplace_back();  // an empty last cell
    for (std::size_t i = 0; i < row.size(); ++i)
      if (rows.size() > 1 && kTimes.contains(rows[0][i])) row[i].clear();
  }
  return rows;
}

inline StateDict last_state_of(const std::filesystem::path& run) {
  return load_safetensors(newest_valid_checkpoint(run / "checkpoints").value().path);
}

// Bits, so that NaN equals NaN.
inline bool has_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

inline void expect_same_tensors(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].first, b.tensors[i].first);
    EXPECT_TRUE(has_same_bits(a.tensors[i].second, b.tensors[i].second)) << a.tensors[i].first;
  }
}

inline void expect_same_run(const std::filesystem::path& run, const std::filesystem::path& expected) {
  SCOPED_TRACE(run.string());
  EXPECT_TRUE(text_of(run / "weights.safetensors") == text_of(expected / "weights.safetensors"));
  expect_same_tensors(last_state_of(run), last_state_of(expected));
  EXPECT_EQ(records_of(run), records_of(expected));
  EXPECT_EQ(csv_of(run), csv_of(expected));
  for (const char* const file : {"confusion_matrix.csv", "calibration.csv", "residuals.csv",
                                 "worst_predictions.csv", "worst_pictures.npy", "worst_masks.npy"})
    EXPECT_EQ(text_of(run / file), text_of(expected / file)) << file;
  auto summary = nlohmann::json::parse(text_of(run / "run.json"));
  auto wanted = nlohmann::json::parse(text_of(expected / "run.json"));
  for (const std::string& name : kTimes) {
    summary["metrics"].erase(name);
    wanted["metrics"].erase(name);
  }
  for (const char* key : {"status", "global_step", "best", "metrics", "checkpoint", "validation_report"})
    EXPECT_EQ(summary[key], wanted[key]) << key;
}

// A run of half a second with everything that could be lost: dropout, running statistics, a schedule,
// optimizer state, shuffling, and checkpoints within epochs.
inline void write_small_cnn(const std::filesystem::path& file, const std::string& checkpoint = "",
                            const std::string& trainer = "", const std::string& data = "") {
  write_text(file, R"([model]
name = "small_cnn"
channels = [4, 4]
hidden = 16
[data]
name = "digits"
batch_size = 64
)" + data + R"([optimizer]
name = "adamw"
[schedule]
name = "cosine"
warmup_steps = 10
[checkpoint]
)" + checkpoint + R"(
[trainer]
max_epochs = 6
log_every_n_steps = 1
gradient_clip_val = 1.0
)" + trainer);
}

}  // namespace kindling
