// Writing: the engine and the handles of its saves.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>

#include "deepfreeze/checkpointer.h"
#include "errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

using KeepBest = std::tuple<std::string, std::string, std::size_t>;

Error invalid(const std::string& message) { return {ErrorCode::kInvalidArgument, message}; }

Level level_of(const std::string& name) {
  if (name == "captured") return Level::kCaptured;
  if (name == "local") return Level::kLocal;
  if (name == "durable") return Level::kDurable;
  raise(invalid("level \"" + name + "\": not captured, local or durable"));
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  constexpr double kSecondsMax = 1e9;  // more would overflow what a wait takes
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::min(std::max(seconds, 0.0), kSecondsMax) * 1000.0));
}

OnBusy on_busy_of(const std::string& name) {
  if (name == "block") return OnBusy::kBlock;
  if (name == "skip") return OnBusy::kSkip;
  raise(invalid("on_busy \"" + name + "\": not block or skip"));
}

Keep::Best best_of(const KeepBest& best) {
  const auto& [metric, better, count] = best;
  if (better != "min" && better != "max") {
    raise(invalid("keep.best \"" + better + "\": not min or max"));
  }
  return {metric, better == "min" ? Keep::Better::kMin : Keep::Better::kMax, count};
}

Profile profile_of(const std::string& name) {
  if (name == "auto") return Profile::kAuto;
  if (name == "latency") return Profile::kLatency;
  if (name == "throughput") return Profile::kThroughput;
  raise(invalid("profile \"" + name + "\": not auto, latency or throughput"));
}

std::optional<std::chrono::milliseconds> timeout_of(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  return milliseconds_of(*seconds);
}

Tensor make_source(std::string key, const std::string& dtype, std::vector<std::uint64_t> shape,
                   std::string logical_dtype, std::uintptr_t address, std::size_t bytes,
                   std::uint32_t guard) {
  const auto known = dtype_from_name(dtype);
  if (!known) raise(invalid("tensor " + key + ": dtype \"" + dtype + "\" can't be stored"));
  return {.spec = {.key = std::move(key),
                   .dtype = *known,
                   .shape = std::move(shape),
                   .logical_dtype = std::move(logical_dtype),
                   .box = {},
                   .global_shape = {}},
          .data = {reinterpret_cast<const std::byte*>(address), bytes},
          .guard = guard};
}

Checkpointer open_engine(const std::string& path, std::optional<std::size_t> keep_last,
                         std::optional<std::uint64_t> keep_every,
                         const std::optional<KeepBest>& keep_best,
                         std::optional<std::pair<std::string, std::uint64_t>> parent,
                         const std::string& on_busy, double busy_wait_max_seconds,
                         const std::string& profile, std::optional<std::size_t> arena_bytes_max) {
  Options options;
  options.keep.last = keep_last;
  options.keep.every = keep_every;
  if (keep_best) options.keep.best = best_of(*keep_best);
  if (parent) options.parent = ParentPoint{parent->first, parent->second};
  options.on_busy = on_busy_of(on_busy);
  options.busy_wait_max = milliseconds_of(busy_wait_max_seconds);
  options.profile = profile_of(profile);
  options.arena_bytes_max = arena_bytes_max;
  return without_gil([&] { return Checkpointer::open(path, std::move(options)); });
}

std::optional<SaveHandle> save(Checkpointer& engine, std::uint64_t step, TensorTable sources,
                               std::string objects, std::map<std::string, double> metrics,
                               std::map<std::string, std::string> tags,
                               std::map<std::string, std::string> environment, bool confirm) {
  const SaveRequest request{.step = step,
                            .tensors = std::move(sources),
                            .objects = std::move(objects),
                            .metrics = std::move(metrics),
                            .tags = std::move(tags),
                            .environment = std::move(environment),
                            .confirm = confirm};
  return without_gil([&] { return engine.save(request); });
}

void wait_handle(const SaveHandle& handle, const std::string& level,
                 std::optional<double> timeout_seconds) {
  const Level wanted = level_of(level);
  without_gil([&] { return handle.wait(wanted, timeout_of(timeout_seconds)); });
}

nb::object status_error(const SaveStatus& status) {
  return status.error ? make_exception(*status.error) : nb::none();
}

void bind_handle(nb::module_& module) {
  nb::class_<SaveStatus>(module, "SaveStatus")
      .def_ro("step", &SaveStatus::step)
      .def_ro("bytes", &SaveStatus::bytes)
      .def_ro("bytes_copied", &SaveStatus::bytes_copied)
      .def_ro("bytes_written", &SaveStatus::bytes_written)
      .def_ro("guarded_bytes", &SaveStatus::guarded_bytes)
      .def_ro("stall_seconds", &SaveStatus::stall_seconds)
      .def_ro("fence_seconds", &SaveStatus::fence_seconds)
      .def_ro("copy_seconds", &SaveStatus::copy_seconds)
      .def_ro("checksum_seconds", &SaveStatus::checksum_seconds)
      .def_ro("write_seconds", &SaveStatus::write_seconds)
      .def_ro("commit_seconds", &SaveStatus::commit_seconds)
      .def_ro("durable_seconds", &SaveStatus::durable_seconds)
      .def_ro("early", &SaveStatus::early)
      .def_ro("captured", &SaveStatus::captured)
      .def_ro("local", &SaveStatus::local)
      .def_ro("durable", &SaveStatus::durable)
      .def_ro("torn", &SaveStatus::torn)
      .def_prop_ro("error", &status_error);
  nb::class_<SaveHandle>(module, "SaveHandle")
      .def("wait", &wait_handle, "level"_a, "timeout_seconds"_a.none())
      .def(
          "wait_copied",
          [](const SaveHandle& handle, std::optional<double> timeout_seconds) {
            without_gil([&] { return handle.wait_copied(timeout_of(timeout_seconds)); });
          },
          "timeout_seconds"_a.none())
      .def("confirm", &SaveHandle::confirm, "torn"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("status", &SaveHandle::status);
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_handle(module);
  nb::class_<Tensor>(module, "Source")
      .def(
          "__init__",
          [](Tensor* self, std::string key, const std::string& dtype,
             std::vector<std::uint64_t> shape, std::string logical_dtype, std::uintptr_t address,
             std::size_t bytes, std::uint32_t guard) {
            new (self) Tensor(make_source(std::move(key), dtype, std::move(shape),
                                          std::move(logical_dtype), address, bytes, guard));
          },
          "key"_a, "dtype"_a, "shape"_a, "logical_dtype"_a, "address"_a, "bytes"_a, "guard"_a = 0);
  nb::class_<Checkpointer>(module, "Engine")
      .def(
          "__init__",
          [](Checkpointer* self, const std::string& path, std::optional<std::size_t> keep_last,
             std::optional<std::uint64_t> keep_every, std::optional<KeepBest> keep_best,
             std::optional<std::pair<std::string, std::uint64_t>> parent,
             const std::string& on_busy, double busy_wait_max_seconds, const std::string& profile,
             std::optional<std::size_t> arena_bytes_max) {
            new (self)
                Checkpointer(open_engine(path, keep_last, keep_every, keep_best, std::move(parent),
                                         on_busy, busy_wait_max_seconds, profile, arena_bytes_max));
          },
          "path"_a, nb::kw_only(), "keep_last"_a = nb::none(), "keep_every"_a = nb::none(),
          "keep_best"_a = nb::none(), "parent"_a = nb::none(), "on_busy"_a = "block",
          "busy_wait_max_seconds"_a = 600.0, "profile"_a = "auto", "arena_bytes_max"_a = nb::none())
      .def("save", &save, "step"_a, "sources"_a, "objects"_a, "metrics"_a, "tags"_a,
           "environment"_a, "confirm"_a = false)
      .def(
          "fence", [](Checkpointer& self, std::uint32_t guard) { self.fence(guard); }, "guard"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "fence_all", [](Checkpointer& self) { self.fence(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "begin_capture",
          [](Checkpointer& self, const TensorTable& sources) {
            return without_gil([&] { return self.begin_capture(sources); });
          },
          "sources"_a)
      .def("release", &Checkpointer::release, "guard"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("discard_capture", &Checkpointer::discard_capture,
           nb::call_guard<nb::gil_scoped_release>())
      .def("candidates",
           [](Checkpointer& self) { return without_gil([&self] { return self.candidates(); }); })
      .def("continue_from",
           [](Checkpointer& self, const CheckpointInfo& info) { unwrap(self.continue_from(info)); })
      .def("wait", &Checkpointer::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("close", [](Checkpointer& self) { without_gil([&self] { return self.close(); }); });
}

}  // namespace deepfreeze::python
