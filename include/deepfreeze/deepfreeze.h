// DeepFreeze, the whole public interface.
#pragma once

#include "deepfreeze/checkpointer.h"
#include "deepfreeze/options.h"
#include "deepfreeze/ranks.h"
#include "deepfreeze/result.h"
#include "deepfreeze/tensor.h"
#include "deepfreeze/version.h"
