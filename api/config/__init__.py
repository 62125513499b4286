"""The controller's configuration: Kueue's file as it is, Berth's own settings beside it.

    apiVersion: config.kueue.x-k8s.io/v1beta2        # or v1beta1
    kind: Configuration
    ...
    ---
    apiVersion: berth.dev/v1alpha1
    kind: ControllerConfig
    ...

Either document may be missing. `load_config` reads the text of such a file; without a file
`ControllerConfig()` holds the defaults.
"""

from api.config.loading import ConfigError, ControllerConfig, LeaseTimes, load_config

__all__ = ["ConfigError", "ControllerConfig", "LeaseTimes", "load_config"]
