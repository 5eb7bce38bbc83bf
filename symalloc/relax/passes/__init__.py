"""What stands in TVM's pipelines, and the pipelines."""
