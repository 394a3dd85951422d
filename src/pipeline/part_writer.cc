#include "pipeline/part_writer.h"

#include <utility>

#include "pipeline/part_files.h"

namespace deepfreeze {

PartWriter::PartWriter(std::unique_ptr<PartFiles> part) : part_(std::move(part)) {}

PartWriter::~PartWriter() = default;

Status PartWriter::finish(const MakeHeader& make_header) {
  join();
  return part_->finish(make_header);
}

void PartWriter::cancel() { part_->cancel(); }

std::uint64_t PartWriter::bytes_written() const { return part_->bytes_written(); }

double PartWriter::write_seconds() const { return part_->write_seconds(); }

}  // namespace deepfreeze
