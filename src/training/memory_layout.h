#pragma once

#include <string>

#include "kindling/tensors/batch.h"
#include "training/precision.h"

namespace kindling {

// TrainerOptions::channels_last for this model. "auto": where a convolution has 32 channels or more and
// computes with 16 bits; on a card it stays off.
bool wants_channels_last(const std::string& option, const torch::nn::Module& model,
                         const Precision& precision, Device device);
// Weights and buffers with four dimensions, those that lazy layers are yet to make, too; the tensors stay the
// same ones, with the same values.
void give_channels_last(torch::nn::Module& model);
Batch in_channels_last(Batch batch);  // its floating-point tensors with four dimensions

}  // namespace kindling
