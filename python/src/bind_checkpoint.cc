// Reading: lists of checkpoints, open ones, their tensors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <string>

#include "deepfreeze/checkpointer.h"
#include "divergence.h"
#include "errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

nb::tuple shape_tuple(const TensorSpec& spec) {
  nb::list sizes;
  for (const std::uint64_t size : spec.shape) sizes.append(size);
  return nb::tuple(sizes);
}

std::string attempt_id_text(const CheckpointInfo& info) {
  std::string digits(16, '0');
  std::uint64_t id = info.attempt_id;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, id >>= 4) {
    *digit = "0123456789abcdef"[id & 0xf];
  }
  return digits;
}

// The box's offset and extent.
using BoxForm = std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>>;

RestoreTarget make_target(std::string key, std::uintptr_t address, std::size_t bytes,
                          std::optional<BoxForm> box) {
  RestoreTarget target{std::move(key), {reinterpret_cast<std::byte*>(address), bytes}};
  if (box) target.box = Box{std::move(box->first), std::move(box->second)};
  return target;
}

void init_target(RestoreTarget* self, std::string key, std::uintptr_t address, std::size_t bytes,
                 std::optional<BoxForm> box, std::int32_t device, std::uintptr_t stream) {
  new (self) RestoreTarget(make_target(std::move(key), address, bytes, std::move(box)));
  self->device = device;
  self->stream = stream;
}

// Bytes read so far, for another Python thread to look at: the reading threads take no GIL.
class ReadCounter {
 public:
  [[nodiscard]] std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  void set(std::uint64_t bytes) { bytes_.store(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> bytes_{0};  // relaxed: no other data depends on it
};

OnProgress told_to(ReadCounter* counter) {
  if (counter == nullptr) return {};
  return [counter](std::uint64_t bytes) { counter->set(bytes); };
}

void read(const OpenCheckpoint& checkpoint, const std::vector<RestoreTarget>& targets, bool verify,
          ReadCounter* counter) {
  without_gil([&] { return checkpoint.read(targets, verify, told_to(counter)); });
}

// The form in which Python names files: bytes that are not UTF-8 are kept as they are
// (os.fsencode()).
nb::str path_text(const std::string& path) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

// In UTC, to the second.
std::string time_text(std::int64_t wall_micros) {
  const auto seconds = static_cast<std::time_t>(wall_micros / 1'000'000);
  std::tm parts = {};
  std::array<char, 32> text = {};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

nb::object repr_of(const CheckpointInfo& info) {
  nb::str text =
      nb::str("CheckpointInfo(step={}, generation={}, saved='{}', bytes={}, metrics={}{}{})");
  return text.attr("format")(info.step, info.generation, time_text(info.wall_micros), info.bytes,
                             info.metrics, info.abandoned ? ", abandoned=True" : "",
                             info.fault.empty()
                                 ? nb::object(nb::str(""))
                                 : nb::str(", fault={!r}").attr("format")(text_of(info.fault)));
}

nb::object repr_of_fault(const FaultInfo& fault) {
  return nb::str("Fault(file={!r}, cause={!r}, blocks={!r}, tensors={!r})")
      .attr("format")(text_of(fault.file), text_of(fault.cause), fault.blocks, fault.tensors);
}

nb::tuple copies_of(const CheckpointInfo& info) {
  nb::list paths;
  for (const std::string& copy : info.copies) paths.append(path_text(copy));
  return nb::tuple(paths);
}

// Least, greatest, count of finite and of other values; None without statistics.
nb::list ranges_of(const OpenCheckpoint& checkpoint) {
  nb::list ranges;
  for (const auto& range : checkpoint.ranges()) {
    if (range) {
      ranges.append(nb::make_tuple(range->min, range->max, range->finite, range->non_finite));
    } else {
      ranges.append(nb::none());
    }
  }
  return ranges;
}

nb::list mended_of(const OpenCheckpoint& checkpoint) {
  nb::list files;
  for (const MendedFile& mended : checkpoint.mended()) {
    files.append(
        nb::make_tuple(text_of(mended.file), path_text(mended.path), text_of(mended.cause)));
  }
  return files;
}

nb::dict sources_of(const OpenCheckpoint& checkpoint) {
  nb::dict sources;
  for (const auto& [file, path] : checkpoint.sources()) sources[text_of(file)] = path_text(path);
  return sources;
}

void bind_values(nb::module_& module) {
  nb::class_<TensorSpec>(module, "TensorSpec")
      .def_ro("key", &TensorSpec::key)
      .def_prop_ro("dtype", [](const TensorSpec& s) { return std::string(dtype_name(s.dtype)); })
      .def_prop_ro("shape", &shape_tuple)
      .def_ro("logical_dtype", &TensorSpec::logical_dtype);
  nb::class_<RestoreTarget>(module, "Target")
      .def("__init__", &init_target, "key"_a, "address"_a, "bytes"_a, "box"_a = nb::none(),
           "device"_a = kHostMemory, "stream"_a = 0);
  nb::class_<FaultInfo>(module, "Fault")
      .def("__repr__", &repr_of_fault)
      .def_prop_ro("file", [](const FaultInfo& fault) { return text_of(fault.file); })
      .def_prop_ro("cause", [](const FaultInfo& fault) { return text_of(fault.cause); })
      .def_ro("blocks", &FaultInfo::blocks)
      .def_ro("tensors", &FaultInfo::tensors);
}

void bind_info(nb::module_& module) {
  nb::class_<CheckpointInfo>(module, "CheckpointInfo")
      .def_ro("generation", &CheckpointInfo::generation)
      .def_ro("step", &CheckpointInfo::step)
      .def_ro("save_index", &CheckpointInfo::save_index)
      .def_prop_ro("attempt_id", &attempt_id_text)
      .def_ro("wall_micros", &CheckpointInfo::wall_micros)
      .def_ro("bytes", &CheckpointInfo::bytes)
      .def_ro("world_size", &CheckpointInfo::world_size)
      .def_ro("abandoned", &CheckpointInfo::abandoned)
      .def_prop_ro("path", [](const CheckpointInfo& info) { return path_text(info.path); })
      .def_prop_ro("copies", &copies_of)
      .def_ro("metrics", &CheckpointInfo::metrics)
      .def_ro("tags", &CheckpointInfo::tags)
      .def_ro("environment", &CheckpointInfo::environment)
      .def_ro("non_finite", &CheckpointInfo::non_finite)
      .def_prop_ro("diverged", [](const CheckpointInfo& info) { return pairs_of(info.diverged); })
      .def_prop_ro("fault", [](const CheckpointInfo& info) { return text_of(info.fault); })
      .def("__repr__", &repr_of);
}

void bind_open_checkpoint(nb::module_& module) {
  nb::class_<OpenCheckpoint>(module, "OpenCheckpoint")
      .def_prop_ro("info", &OpenCheckpoint::info)
      .def("objects", &OpenCheckpoint::objects, "rank"_a = 0)
      .def("tensors", [](const OpenCheckpoint& self) { return self.tensors(); })
      .def("ranges", &ranges_of)
      .def("mended", &mended_of)
      .def("sources", &sources_of)
      .def("read", &read, "targets"_a, "verify"_a, "counter"_a = nb::none());
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  bind_values(module);
  bind_info(module);
  bind_best(module);
  bind_open_checkpoint(module);
  nb::class_<ReadCounter>(module, "ReadCounter")
      .def(nb::init<>())
      .def_prop_ro("bytes", &ReadCounter::bytes);
  module.def(
      "list_checkpoints",
      [](const std::filesystem::path& run, const std::vector<std::string>& tiers) {
        return without_gil([&] { return list_checkpoints(run, tiers); });
      },
      "run"_a, "tiers"_a = std::vector<std::string>());
  module.def("open_checkpoint", [](const CheckpointInfo& info) {
    return without_gil([&info] { return open_checkpoint(info); });
  });
  module.def(
      "fork_checkpoint",
      [](const CheckpointInfo& info, const std::filesystem::path& run) {
        return without_gil([&] { return fork_checkpoint(info, run); });
      },
      "info"_a, "run"_a);
  module.def(
      "tag_checkpoint",
      [](const CheckpointInfo& info, const std::map<std::string, std::string>& set,
         const std::vector<std::string>& remove) {
        return without_gil([&] { return tag_checkpoint(info, set, remove); });
      },
      "info"_a, "set"_a, "remove"_a);
  module.def(
      "list_runs",
      [](const std::filesystem::path& tree) {
        return without_gil([&] { return list_runs(tree); });
      },
      "tree"_a);
  module.def("delete_checkpoint", [](const CheckpointInfo& info) {
    return without_gil([&info] { return delete_checkpoint(info); });
  });
  module.def(
      "verify_checkpoint",
      [](const CheckpointInfo& info, ReadCounter* counter) {
        return without_gil([&] { return verify_checkpoint(info, told_to(counter)); });
      },
      "info"_a, "counter"_a = nb::none());
}

}  // namespace deepfreeze::python
