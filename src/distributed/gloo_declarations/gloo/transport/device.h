#pragma once
// See algorithm.h.
namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
