"""The Grafana boards, as data; only ``style`` knows Grafana. Made when gpuwatch is developed, never when it runs."""
