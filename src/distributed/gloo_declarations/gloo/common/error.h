#pragma once
// LibTorch's header of c10d's Gloo back end asks for Gloo's own headers, which its packages do not bring.
// These declare as much as that header names; what they name lives in LibTorch, and nothing here is ever
// instantiated.
