#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/run_config.h"
#include "cli/run/weights.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/optim/optimizer_factory.h"

namespace kindling {

// The weights that a model starts from. The file is empty for the model's initial weights.
struct StartWeights : WeightsSource {
  std::optional<LoadReport> report{};  // with init_strict = false
};

// Loads model.init_weights as the other keys init_* of the config say. Throws ConfigError for a prefix or a
// rule of the map that matches no name, and CheckpointError if no parameter is loaded.
StartWeights load_init_weights(const ConfigTables& config, Module& model);

// Returns the data of a run with these weights, and gives the model the transform of its inputs. Columns,
// kinds and categories of a table come from the file, as far as it describes them. `predicted`: a file whose
// samples predict_dataloader() returns; empty: none.
std::shared_ptr<DataModule> make_data_for(const RunConfig& config, const std::filesystem::path& weights,
                                          Module& model, const std::filesystem::path& predicted = {});

// Returns the names of the classes that the weights were trained with, as their run recorded them; without a
// record, those of the data. Warns if the data names its classes otherwise.
std::vector<std::string> trained_class_names(const WeightsSource& weights, DataModule& data);

// Throws ConfigError if model.init_weights belongs to a table whose columns are not those of the data: their
// weights would meet other columns. Does nothing for other data.
void require_same_columns(const ConfigTables& config, DataModule& data);

// Gives the model the class weights of the config: listed, or counted on the training samples of the data,
// which draws no random numbers. Call it for every model that computes a loss: they are not among its
// weights. Throws ConfigError for a model that is not a classifier, and for classes without training samples.
void give_class_weights(const ConfigTables& config, Module& model, DataModule& data);

// Gives a model with scale_target the mean and deviation of the training labels, which draws no random
// numbers, unless model.init_weights has given it those of its former data. Throws DataError.
void give_target_scale(const ConfigTables& config, Module& model, DataModule& data);

// Loads the files that a new run starts from, before it has a directory. Throws ConfigError and
// CheckpointError.
StartWeights start_from_files(const RunConfig& config, Module& model);

// Returns what was loaded and what was not, a line each with at most `max_names` names; empty without report.
std::vector<std::string> report_lines(const StartWeights& weights, std::size_t max_names);

// Prints the file, the reason for it and the report to stderr, as far as there are any.
void print_start(const StartWeights& weights);

// Returns a factory whose optimizers start from a PyTorch state, if one is requested.
OptimizerFactory with_start(const OptimizerFactory& make, const OptimizerStartOptions& start);

}  // namespace kindling
