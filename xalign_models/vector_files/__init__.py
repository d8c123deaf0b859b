"""Files of stored vectors: parquet, npz and safetensors."""
