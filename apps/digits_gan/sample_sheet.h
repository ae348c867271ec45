#pragma once

#include <kindling/config/options.h>
#include <kindling/training/callback.h>

#include <filesystem>

struct SampleSheetOptions {
  std::filesystem::path file = "samples.pgm";
  static constexpr auto fields =
      kindling::fields(kindling::field("file", &SampleSheetOptions::file, {.doc = "image file to write"}));
};

// Writes an image of 10 x 10 generated digits at the end of the fit.
class SampleSheet : public kindling::Callback {
 public:
  explicit SampleSheet(SampleSheetOptions options) : options_(std::move(options)) {}
  void on_fit_end(kindling::Trainer& trainer, kindling::Module& model,
                  const kindling::FitResult& result) override;

 private:
  SampleSheetOptions options_;
};
