#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/data/prediction_origin.h"
#include "kindling/data/transform.h"

namespace kindling {

// The transforms of each stage; nullptr: none.
struct StageTransforms {
  std::shared_ptr<const Transform> train{};
  std::shared_ptr<const Transform> val{};  // of validation, testing and prediction
};

// Another data module whose batches are changed by transforms, on the device and after the other's
// on_after_batch_transfer(), which makes floating-point images of bytes. The random numbers come from the
// loaders, so they depend on seed, epoch and sample only (see DataModule::num_random_numbers).
//
//   auto crop = std::make_shared<RandomCrop>(RandomCropOptions{.size = {{28, 28}}, .padding = 4});
//   TransformedData data(std::make_shared<Mnist>(MnistOptions{}), {.train = crop});
class KINDLING_API TransformedData : public DataModule, public PredictionOriginSource {
 public:
  // Throws ConfigError for a null pointer.
  TransformedData(std::shared_ptr<DataModule> data, StageTransforms transforms);
  ~TransformedData() override;

  void prepare_data() override;
  // Return loaders of the other module's data sets, with its options and more random numbers; its own loaders
  // if the transform needs none.
  std::shared_ptr<DataLoader> train_dataloader() override;
  std::shared_ptr<DataLoader> val_dataloader() override;
  std::vector<NamedLoader> more_val_dataloaders() override;
  std::shared_ptr<DataLoader> test_dataloader() override;
  std::shared_ptr<DataLoader> predict_dataloader() override;

  // Throws DataError for a batch without the random numbers, which comes from another loader.
  Batch on_after_batch_transfer(Batch batch, Stage stage) override;
  Batch on_after_batch_transfer(Batch batch) override;  // as for prediction
  at::Tensor unscale_targets(const at::Tensor& values) override;
  // Throws ConfigError for transforms that change values of the inputs only, such as normalize.
  Rollouts rollouts() override;
  std::int64_t num_random_numbers(Stage stage) const override;

  std::shared_ptr<InputTransform> input_transform() override;
  std::optional<at::ScalarType> program_input_type() override;
  void restore_input_transform(const std::string& description) override;
  void predict_from(const std::filesystem::path& file) override;
  std::vector<std::string> class_names() override;
  std::vector<std::string> skipped_samples() override;
  SampleIds train_ids() override;
  SampleIds val_ids() override;
  SampleIds predict_ids() override;
  PredictionOrigin predict_origin() override;

 private:
  struct StageLoader {
    std::shared_ptr<DataLoader> inner{}, loader{};
  };
  const Transform* transform_of(Stage stage) const noexcept;
  bool adds_random_numbers(Stage stage) const noexcept;
  std::shared_ptr<DataLoader> loader_for(Stage stage, std::shared_ptr<DataLoader> inner);
  std::shared_ptr<DataLoader> new_loader(Stage stage, const std::shared_ptr<DataLoader>& inner) const;

  std::shared_ptr<DataModule> data_;
  StageTransforms transforms_;
  std::array<StageLoader, 4> loaders_;  // the latest of each stage
};

}  // namespace kindling
