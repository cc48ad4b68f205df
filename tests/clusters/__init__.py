"""Every command of docs/deploying.md on real clusters: Spark standalone, YARN, HDFS, S3: `make clusters`."""
