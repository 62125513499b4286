"""The controller's configuration: Kueue's configuration file, plus Berth's own settings.

    apiVersion: config.kueue.x-k8s.io/v1beta2        # or v1beta1
    kind: Configuration
    ...
    ---
    apiVersion: berth.dev/v1alpha1
    kind: ControllerConfig
    ...

Each document is optional. `load_config` parses the text of such a file; without a file,
`ControllerConfig()` contains the defaults.
"""
