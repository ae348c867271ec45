// The interface of a training plug-in: C functions, found by name, so that the host needs no LibTorch header.
#pragma once

extern "C" {

// Makes models and data; the only call that draws from LibTorch's default generator.
void plugin_prepare();

// Trains, evaluates, predicts, is stopped, and runs into errors. Returns how many of these went as expected.
int plugin_train();
constexpr int kThingsThatPluginTrainDoes = 10;

// LibTorch's process-wide and thread-wide settings and its default generator's state, as text.
const char* plugin_settings();
}
